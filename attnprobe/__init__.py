"""attnprobe: may I read this classifier's attention as an explanation?"""
